// Made by bindgen from the MLIR C API headers of LLVM 22.1.8, which are
// "Part of the LLVM Project, under the Apache License v2.0 with LLVM Exceptions"
// (https://llvm.org/LICENSE.txt). See the crate's documentation for how.

#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirLlvmThreadPool {
    pub ptr: *mut std::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirTypeID {
    pub ptr: *const std::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirTypeIDAllocator {
    pub ptr: *mut std::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirStringRef {
    pub data: *const std::ffi::c_char,
    pub length: usize,
}
pub type MlirStringCallback = Option<
    unsafe extern "C" fn(arg1: MlirStringRef, arg2: *mut std::ffi::c_void),
>;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirLogicalResult {
    pub value: i8,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirAsmState {
    pub ptr: *mut std::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirBytecodeWriterConfig {
    pub ptr: *mut std::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirContext {
    pub ptr: *mut std::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirDialect {
    pub ptr: *mut std::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirDialectRegistry {
    pub ptr: *mut std::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirOperation {
    pub ptr: *mut std::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirOpOperand {
    pub ptr: *mut std::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirOpPrintingFlags {
    pub ptr: *mut std::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirBlock {
    pub ptr: *mut std::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirRegion {
    pub ptr: *mut std::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirAttribute {
    pub ptr: *const std::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirIdentifier {
    pub ptr: *const std::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirLocation {
    pub ptr: *const std::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirModule {
    pub ptr: *const std::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirType {
    pub ptr: *const std::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirValue {
    pub ptr: *const std::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirNamedAttribute {
    pub name: MlirIdentifier,
    pub attribute: MlirAttribute,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirDialectHandle {
    pub ptr: *const std::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirOperationState {
    pub name: MlirStringRef,
    pub location: MlirLocation,
    pub nResults: isize,
    pub results: *mut MlirType,
    pub nOperands: isize,
    pub operands: *mut MlirValue,
    pub nRegions: isize,
    pub regions: *mut MlirRegion,
    pub nSuccessors: isize,
    pub successors: *mut MlirBlock,
    pub nAttributes: isize,
    pub attributes: *mut MlirNamedAttribute,
    pub enableResultTypeInference: bool,
}
pub const MlirWalkResult_MlirWalkResultAdvance: MlirWalkResult = 0;
pub const MlirWalkResult_MlirWalkResultInterrupt: MlirWalkResult = 1;
pub const MlirWalkResult_MlirWalkResultSkip: MlirWalkResult = 2;
pub type MlirWalkResult = std::ffi::c_uint;
pub const MlirWalkOrder_MlirWalkPreOrder: MlirWalkOrder = 0;
pub const MlirWalkOrder_MlirWalkPostOrder: MlirWalkOrder = 1;
pub type MlirWalkOrder = std::ffi::c_uint;
pub type MlirOperationWalkCallback = Option<
    unsafe extern "C" fn(
        arg1: MlirOperation,
        userData: *mut std::ffi::c_void,
    ) -> MlirWalkResult,
>;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirAffineExpr {
    pub ptr: *const std::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirAffineMap {
    pub ptr: *const std::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirPass {
    pub ptr: *mut std::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirExternalPass {
    pub ptr: *mut std::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirPassManager {
    pub ptr: *mut std::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirOpPassManager {
    pub ptr: *mut std::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirExternalPassCallbacks {
    pub construct: Option<
        unsafe extern "C" fn(userData: *mut std::ffi::c_void),
    >,
    pub destruct: Option<
        unsafe extern "C" fn(userData: *mut std::ffi::c_void),
    >,
    pub initialize: Option<
        unsafe extern "C" fn(
            ctx: MlirContext,
            userData: *mut std::ffi::c_void,
        ) -> MlirLogicalResult,
    >,
    pub clone: Option<
        unsafe extern "C" fn(
            userData: *mut std::ffi::c_void,
        ) -> *mut std::ffi::c_void,
    >,
    pub run: Option<
        unsafe extern "C" fn(
            op: MlirOperation,
            pass: MlirExternalPass,
            userData: *mut std::ffi::c_void,
        ),
    >,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirDiagnostic {
    pub ptr: *mut std::ffi::c_void,
}
pub const MlirDiagnosticSeverity_MlirDiagnosticError: MlirDiagnosticSeverity = 0;
pub const MlirDiagnosticSeverity_MlirDiagnosticWarning: MlirDiagnosticSeverity = 1;
pub const MlirDiagnosticSeverity_MlirDiagnosticNote: MlirDiagnosticSeverity = 2;
pub const MlirDiagnosticSeverity_MlirDiagnosticRemark: MlirDiagnosticSeverity = 3;
pub type MlirDiagnosticSeverity = std::ffi::c_uint;
pub type MlirDiagnosticHandlerID = u64;
pub type MlirDiagnosticHandler = Option<
    unsafe extern "C" fn(
        arg1: MlirDiagnostic,
        userData: *mut std::ffi::c_void,
    ) -> MlirLogicalResult,
>;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirExecutionEngine {
    pub ptr: *mut std::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirRewriterBase {
    pub ptr: *mut std::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirFrozenRewritePatternSet {
    pub ptr: *mut std::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirGreedyRewriteDriverConfig {
    pub ptr: *mut std::ffi::c_void,
}
pub const MlirGreedyRewriteStrictness_MLIR_GREEDY_REWRITE_STRICTNESS_ANY_OP: MlirGreedyRewriteStrictness = 0;
pub const MlirGreedyRewriteStrictness_MLIR_GREEDY_REWRITE_STRICTNESS_EXISTING_AND_NEW_OPS: MlirGreedyRewriteStrictness = 1;
pub const MlirGreedyRewriteStrictness_MLIR_GREEDY_REWRITE_STRICTNESS_EXISTING_OPS: MlirGreedyRewriteStrictness = 2;
pub type MlirGreedyRewriteStrictness = std::ffi::c_uint;
pub const MlirGreedySimplifyRegionLevel_MLIR_GREEDY_SIMPLIFY_REGION_LEVEL_DISABLED: MlirGreedySimplifyRegionLevel = 0;
pub const MlirGreedySimplifyRegionLevel_MLIR_GREEDY_SIMPLIFY_REGION_LEVEL_NORMAL: MlirGreedySimplifyRegionLevel = 1;
pub const MlirGreedySimplifyRegionLevel_MLIR_GREEDY_SIMPLIFY_REGION_LEVEL_AGGRESSIVE: MlirGreedySimplifyRegionLevel = 2;
pub type MlirGreedySimplifyRegionLevel = std::ffi::c_uint;
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirRewritePatternSet {
    pub ptr: *mut std::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirPatternRewriter {
    pub ptr: *mut std::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirRewritePattern {
    pub ptr: *const std::ffi::c_void,
}
#[repr(C)]
#[derive(Debug, Copy, Clone)]
pub struct MlirRewritePatternCallbacks {
    pub construct: Option<
        unsafe extern "C" fn(userData: *mut std::ffi::c_void),
    >,
    pub destruct: Option<
        unsafe extern "C" fn(userData: *mut std::ffi::c_void),
    >,
    pub matchAndRewrite: Option<
        unsafe extern "C" fn(
            pattern: MlirRewritePattern,
            op: MlirOperation,
            rewriter: MlirPatternRewriter,
            userData: *mut std::ffi::c_void,
        ) -> MlirLogicalResult,
    >,
}
