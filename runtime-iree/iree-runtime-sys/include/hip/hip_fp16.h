// IREE's header of RCCL includes this and uses nothing of it; the HIP headers that set-up fetches lack it.
