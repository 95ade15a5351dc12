"""Writes frontend/tests/templates/matrix.json: conversations through chat templates, as transformers renders them.

Usage: python template_cases.py, with transformers 5.24 and jinja2 installed. The templates are written for the tests, and do what
published ones do in words of their own. Each gets each conversation; a rendering is a text, or what the template raised, or
what Python failed with.
"""

import datetime
import json
import pathlib

import tokenizers
from jinja2.exceptions import TemplateError
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils


class Noon(datetime.datetime):
    @classmethod
    def now(cls, zone=None):
        return cls(2024, 7, 5, 9, 8, 7, 12345)


chat_template_utils.datetime = Noon

TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "The weather \"now\" in <a city> — é\n日本",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "City"},
            "days": {"type": "integer", "default": 1},
            "units": {"type": "string", "enum": ["c", "f"]},
            "where": {"type": "array", "items": {"type": "number"}},
            "more": {"type": "object", "properties": {"deep": {"type": ["boolean", "null"]}}}},
            "required": ["city"]}}},
    {"type": "function", "function": {"name": "noop", "description": "", "parameters": {"type": "object", "properties": {}}}},
]


def user(content):
    return {"role": "user", "content": content}


def call(arguments, number=1, **more):
    function = {"name": "get_weather", "arguments": arguments}
    return {"role": "assistant", "tool_calls": [
        {"id": f"call{number:05}", "type": "function", "function": function}]} | more


SYSTEM = {"role": "system", "content": " Be brief.\n"}
ANSWER = {"role": "tool", "name": "get_weather", "tool_call_id": "call00001", "content": "{\"t\": 21.5}"}
CALLS = {"tools": TOOLS, "add_generation_prompt": True}
CONVERSATIONS = {
    "user": {"messages": [user("Hello <b>\n there ")], "add_generation_prompt": True},
    "system": {"messages": [SYSTEM, user("Hi & 'bye' \"x\"")], "add_generation_prompt": True},
    "turns": {"messages": [SYSTEM, user(" Hi "), {"role": "assistant", "content": "Hello!\n"}, user("日本語 😀 \u2028 é")]},
    "two-users": {"messages": [user("a"), user("b")], "add_generation_prompt": True},
    "starts-with-assistant": {"messages": [{"role": "assistant", "content": "a"}, user("b")]},
    "tools": {"messages": [SYSTEM, user("Weather?")]} | CALLS,
    "called": {"messages": [user("Weather?"), call({"city": "Zürich", "days": 2, "where": [1.5, 1e20]}, content=""),
                            ANSWER, {"role": "assistant", "content": "21.5"}, user("Thanks")]} | CALLS,
    "called-null": {"messages": [user("Weather?"), call({"city": None, "x": True}, content=None), ANSWER]} | CALLS,
    "called-missing": {"messages": [user("Weather?"), call({}), ANSWER]} | CALLS,
    "called-as-text": {"messages": [user("Weather?"), call("{\"city\": \"Zürich\"}", content="Let me see"), ANSWER]} | CALLS,
    "called-twice": {"messages": [user("W?"), {"role": "assistant", "content": None, "tool_calls": [
        call({"city": "A"})["tool_calls"][0], call({"city": "B"}, 2)["tool_calls"][0]]}, ANSWER,
        ANSWER | {"tool_call_id": "call00002"}]} | CALLS,
    "null-fields": {"messages": [{"role": "user", "content": "Q", "name": None, "tool_calls": None},
                                 {"role": "assistant", "content": None}, user("")], "tools": None, "documents": None},
    "thought": {"messages": [user("Q"), {"role": "assistant", "content": "A", "reasoning_content": "Because\n"}, user("R")],
                "add_generation_prompt": True},
    "thought-inside": {"messages": [user("Q"), {"role": "assistant", "content": "<think>\nHm\n</think>\n\nA"}, user("R")],
                       "add_generation_prompt": True, "enable_thinking": False},
    "parts": {"messages": [user([{"type": "text", "text": "one"}, {"type": "image"}, {"type": "text", "text": " two"}])],
              "add_generation_prompt": True},
    "documents": {"messages": [user("Q")], "documents": [{"title": "T é", "text": "Body\nmore"}, {"title": "", "text": "x"}],
                  "add_generation_prompt": True},
    "other-role": {"messages": [{"role": "critic", "content": "No."}, user("b")], "date_string": "26 Jul 2024"},
}

TEMPLATES = {
    "added-texts": """{% for m in messages %}{% if loop.first and m['role'] not in ['system', 'developer'] %}{{ '[[rules]]
none
' }}{% endif %}{{ '[[' + m['role'] + ']]
' + m['content'] + '
' }}{% if not loop.last %}{{ '--' + '
' }}{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '[[reply]]
' }}{% endif %}""",
    "alternating": """{%- set start = 1 if messages[0].role == 'system' else 0 -%}
{%- set preface = messages[0].content | trim ~ '\n----\n' if start else '' -%}
{%- for m in messages[start:] -%}
{%- set expected = ['user', 'assistant'][loop.index0 % 2] -%}
{%- if m.role != expected %}{{ raise_exception('message ' ~ loop.index ~ ' must be of ' ~ expected ~ ', not ' ~ m.role) }}{% endif -%}
{%- if m.role == 'user' %}{{ bos_token }}Q: {{ (preface if loop.first else '') + m.content.strip() }}
{% else %}A: {{ m['content'].strip() + eos_token }}
{% endif -%}
{%- endfor -%}""",
    "dated": """{#- The date, then tools as indented JSON, then the rest. -#}
{%- set date = date_string if date_string is defined else strftime_now('%A %d %b %Y') %}
{%- set rest = messages %}
{%- set rules = none %}
{%- if rest[0].role == "system" %}
    {%- set rules = rest[0].content | trim %}
    {%- set rest = rest[1:] %}
{%- endif %}
{{- bos_token ~ "@date " ~ date ~ "\n" }}
{%- if rules is not none %}
    {{- "@rules " + rules + "\n" }}
{%- endif %}
{%- if tools is not none and tools | length > 0 %}
    {%- for tool in tools %}
        {{- "@tool " }}
        {{- tool.function | tojson(indent=4) }}
        {{- "\n" }}
    {%- endfor %}
{%- endif %}
{%- for m in rest %}
    {%- if 'tool_calls' in m %}
        {%- if m.tool_calls | length > 1 %}
            {{- raise_exception("one call at a time, not %d" | format(m.tool_calls | length)) }}
        {%- endif %}
        {%- set called = (m.tool_calls | first).function %}
        {{- "@call " ~ called.name ~ " " ~ called.arguments | tojson ~ "\n" }}
    {%- elif m.role is in ["tool", "function"] %}
        {%- if m.content is mapping or (m.content is iterable and m.content is not string) %}
            {{- "@result " ~ m.content | tojson ~ "\n" }}
        {%- else %}
            {{- "@result " ~ m.content ~ "\n" }}
        {%- endif %}
    {%- else %}
        {{- "@" ~ m.role ~ " " ~ m['content'] | trim ~ "\n" }}
    {%- endif %}
{%- endfor %}""",
    "thoughts": """{#- Thoughts are shown after the last question only, which is found from the end. -#}
{%- set state = namespace(question=-1, searching=true, shown=0) %}
{%- for m in messages | reverse %}
    {%- if state.searching and m.role == 'user' and m.content is string and not (m.content.startswith('[result]') or m.content.endswith('[/result]')) %}
        {%- set state.question = messages | length - loop.index %}
        {%- set state.searching = false %}
    {%- endif %}
{%- endfor %}
{%- for m in messages %}
    {%- set said = m.content if m.content is string else '' %}
    {%- set thought = m.reasoning_content | default('') %}
    {%- if not thought and '</think>' in said %}
        {%- set halves = said.split('</think>', 1) %}
        {%- set thought = halves[0].split('<think>')[-1].strip('\n') %}
        {%- set said = halves[-1].lstrip('\n') %}
    {%- endif %}
    {{- '\n#' ~ loop.index0 ~ ' ' ~ m.role | upper ~ ': ' }}
    {%- if thought and loop.index0 > state.question %}
        {%- set state.shown = state.shown + 1 %}
        {{- '(' ~ thought.rstrip('\n') ~ ') ' }}
    {%- endif %}
    {{- said }}
    {%- for c in m.tool_calls or [] %}
        {%- set c = c.function if c.function is defined else c %}
        {%- if said or not loop.first %}{{ '\n' }}{% endif %}
        {{- '[call]{"to": "' ~ c.name ~ '", "with": ' }}
        {{- c.arguments if c.arguments is string else c.arguments | tojson }}
        {{- '}[/call]' }}
    {%- endfor %}
    {%- if m.role == 'tool' and (loop.last or loop.nextitem.role != 'tool') %}{{ '\n(end of results)' }}{% endif %}
    {%- if m.role == 'tool' and (loop.first or messages[loop.index0 - 1].role != 'tool') %}{{ ' (first result)' }}{% endif %}
{%- endfor %}
{{- '\n' ~ state.shown ~ (' no thoughts' if enable_thinking is defined and enable_thinking is false else '') }}""",
    "checked-ids": """{%- set asked = messages | selectattr('role', 'equalto', 'user') | list %}
{%- set spoken = namespace(count=0, names=[]) %}
{%- for m in messages if m.role in ('user', 'assistant') and m.tool_calls is not defined %}
    {%- if (m.role == 'assistant') == (spoken.count is even) %}
        {{- raise_exception('out of turn: ' ~ m.role ~ ' at ' ~ spoken.count) }}
    {%- endif %}
    {%- set spoken.count = spoken.count + 1 %}
{%- endfor %}
{%- for m in messages %}
    {%- if m.role == 'user' %}
        {%- if tools and m == asked | last %}
            {{- '<tools>' }}
            {%- for tool in tools %}
                {%- for name, value in tool.function.items() if name != 'parameters' or value.properties %}
                    {{- name ~ '=' ~ (value if value is string else value | tojson) ~ (';' if not loop.last else '') }}
                {%- endfor %}
                {{- '' if loop.last else '|' }}
            {%- endfor %}
            {{- '</tools>' }}
        {%- endif %}
        {{- '<ask>' + m.content + '</ask>' }}
    {%- elif m.tool_calls is defined %}
        {%- for c in m.tool_calls %}
            {%- if c.id is not defined or c.id | length != 9 %}{{ raise_exception('an id of nine characters is needed') }}{% endif %}
            {%- set spoken.names = spoken.names + [c.function.name] %}
            {%- set body = c.function | tojson %}
            {{- body[:-1] ~ ', "id": ' ~ c.id | tojson ~ body[-1] }}
        {%- endfor %}
    {%- elif m.role == 'tool' %}
        {%- set text = m.content.text if m.content.text is defined else m.content %}
        {{- '<got ' ~ m.tool_call_id[-2:] ~ '>' ~ text | string ~ '</got>' }}
    {%- else %}
        {{- '<' ~ m.role ~ '>' ~ m['content'] | trim ~ (eos_token if m.role == 'assistant' else '') }}
    {%- endif %}
{%- endfor %}
{{- spoken.names | unique | join(',') }}""",
    "typed-tools": """{%- macro type_of(schema, depth=0) -%}
{%- if schema.type is string -%}
{%- if schema.enum -%}{{ schema.enum | map('tojson') | join(' | ') }}
{%- elif schema.type == 'array' -%}{{ type_of(schema['items'], depth + 1) }}[]
{%- elif schema.type == 'object' -%}{ {% for name, inner in schema.get('properties', {}).items() %}{{ name }}{{ '?' if name not in schema.required else '' }}: {{ type_of(inner, depth + 1) }}{% if not loop.last %}, {% endif %}{% endfor %} }
{%- else -%}{{ {'integer': 'number', 'string': 'string'}.get(schema.type, schema.type) }}{% endif -%}
{%- elif schema.type is sequence -%}{{ schema.type | sort | join('|') }}
{%- else -%}any{%- endif -%}
{%- endmacro -%}
{%- if tools -%}
namespace functions {
{% for tool in tools | map(attribute='function') | sort(attribute='name') %}
{% if tool.description %}
// {{ tool.description | replace('\\n', ' ') | truncate(30) if false else tool.description.splitlines() | join(' // ') }}
{% endif %}
type {{ tool.name }} = (_: {{ type_of(tool.parameters) }}) => any; {{ '%-12s|%3d' | format(tool.name, loop.index) }}
{% endfor %}
}
{% endif -%}
{%- for m in messages %}
{%- set role = 'model' if m.role == 'assistant' else m.role %}
<{{ role }}>{{ (m.content or '') if m.content is string else m.content | selectattr('type', 'equalto', 'text') | map(attribute='text') | join }}
{%- for c in m.tool_calls or [] %}
 {{ c.function.name }}({% if c.function.arguments is mapping %}{% for k, v in c.function.arguments | dictsort %}{{ k }}={{ v | tojson if v is not string else v }}{{ ', ' if not loop.last }}{% endfor %}{% else %}{{ c.function.arguments }}{% endif %})
{%- endfor %}
{%- endfor %}
{% if add_generation_prompt %}<model>{% endif %}""",
    "generation": """{% for m in messages %}{% if m['role'] == 'assistant' %}{{ '<a>' }}{% generation %}{{ m['content'] or '' }}{% if m.tool_calls is defined %}{{ m.tool_calls | map(attribute='function') | map(attribute='name') | list }}{% endif %}
{% endgeneration %}{%- else -%}
<{{ m['role'] | upper }}>{%- generation -%}  {{ loop.index }} {%- endgeneration %}
{% endif %}{% endfor %}""",
    "json": """{{ messages | tojson }}
{{ messages | tojson(indent=2) }}
{{ tools | tojson(indent=4, ensure_ascii=true) }}
{{ documents | tojson(separators=(',', ':'), sort_keys=true) }}
{{ messages[-1].content | tojson(ensure_ascii=True) }}|{{ messages | map('tojson') | map('length') | list }}""",
    "python": """{{ messages }}
{{ messages[0].keys() | list }}{{ tools }}{{ documents }}
{%- for m in messages %}{% for k, v in m.items() %}{{ k }}: {{ v is string }} {{ v is none }} {{ v }}
{% endfor %}{% endfor %}{{ none }}{{ true }}{{ 1.0 }}{{ [1e16, 1e-5, 3 / 2, 7 // 2, -7 // 2, -7 % 3] }}""",
    "fields": """{% for m in messages %}{{ m.content is defined }} {{ m['content'] is none }} {{ 'content' in m }} {{ m.get('content') is none }} {{ m.tool_calls is defined }} {{ m.name is none }} {{ m.name | default('nobody') }} {{ m.reasoning_content is defined }}{{ m.thinking | default('') }};
{% endfor %}{{ tools is defined }}{{ tools is none }}{{ documents is none }}{{ add_generation_prompt }}{{ enable_thinking is defined }}{{ date_string | default(strftime_now('%Y-%m-%d %H:%M:%S.%f %j %-d %A')) }}""",
    "documents": """{% set roles = {'user': 'USER', 'assistant': 'BOT'} %}{{ bos_token }}{% if documents %}<results>
{% for document in documents %}Document: {{ loop.index0 }}
{% for key, value in document.items() %}{{ key }}: {{ value if value else '-' }}
{% endfor %}{% endfor %}</results>{% endif %}
{%- for message in messages %}
{%- if message.role in roles %}{{ '\\n' ~ roles[message.role] ~ ': ' ~ message.content }}
{%- elif message.role == 'system' and loop.first %}{{ message.content.strip() }}
{%- elif message.role == 'tool' %}{{ '\\nTOOL: ' ~ (message.content | indent(2)) }}
{%- else %}{{ raise_exception('Unknown role: ' + message.role) }}{% endif %}
{%- endfor %}""",
    "parts": """{{ bos_token }}{% for message in messages %}<turn of {{ message.role }}>
{% if message.content is string -%}{{ message.content | trim }}
{%- elif message.content is iterable -%}{% for item in message.content %}{% if item.type == 'image' %}<image>{% elif item['type'] == 'text' %}{{ item['text'] | trim }}{% endif %}{% endfor %}
{%- else %}{{ raise_exception("content of no known kind") }}{%- endif -%}
<end>
{% endfor %}{% if add_generation_prompt %}{{ '<turn of model\\n' }}{% endif %}""",
    "macro-state": """{%- macro all(list) %}
{%- set seen = namespace(call=none, calls=0) %}
{%- for m in list -%}
{%- if m.thinking is defined %}{{- "~" + m.thinking + "~" }}{% endif %}
{%- if 'tool_calls' in m -%}
{%- set seen.call = m.tool_calls[-1].function.name %}{% set seen.calls = seen.calls + m.tool_calls | length -%}
{{- "to " + seen.call + ": " + m.tool_calls[-1].function.arguments|tojson + ";" }}
{%- elif m.role == 'tool' -%}
{%- if seen.call is none %}{{- raise_exception("a result of no call") }}{%- endif %}
{{- "from " + seen.call + ": " + m.content|tojson + ";" }}
{%- elif loop.last and not add_generation_prompt -%}{{- "last " + m.role + ": " + m.content + "." }}
{%- else -%}{{- m.role + ": " + m.content + ";" }}{%- endif -%}
{%- endfor -%}[{{ seen.calls }}]
{%- endmacro -%}
{{- all(messages) -}}
{%- if add_generation_prompt %} ...{% endif -%}""",
}


def rendered(tokenizer, template, conversation):
    given = dict(conversation)
    messages = given.pop("messages")
    try:
        return tokenizer.apply_chat_template(messages, chat_template=template, tokenize=False, **given)
    except TemplateError as error:
        if type(error) is TemplateError:
            return {"raised": str(error)}
        return {"failed": str(error)}
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        return {"failed": str(error)}


def main():
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({"x": 0}, "x"))
    special = {"bos_token": "<s>", "eos_token": "</s>"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, **special)
    matrix = {name: {case: rendered(tokenizer, template, conversation) for case, conversation in CONVERSATIONS.items()}
              for name, template in TEMPLATES.items()}
    file = pathlib.Path(__file__).parent.parent / "frontend/tests/templates/matrix.json"
    recorded = {"variables": special, "conversations": CONVERSATIONS, "templates": TEMPLATES, "rendered": matrix}
    file.write_text(json.dumps(recorded, indent=1, ensure_ascii=False) + "\n")


main()
