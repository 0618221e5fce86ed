# Decodes profiles with OpenTelemetry's own package and prints them as JSON, with the table entries in place of their indices:
# python3 otlp.py FILE
import json
import sys

from opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2 import ExportProfilesServiceRequest
from opentelemetry.proto.profiles.v1development.profiles_pb2 import ProfilesData

content = open(sys.argv[1], "rb").read()
data = ProfilesData.FromString(content)
assert ExportProfilesServiceRequest.FromString(content).dictionary == data.dictionary
tables = data.dictionary
strings = tables.string_table

# The first entry of each table is empty.
assert strings[0] == ""
for name in ("mapping", "location", "function", "link", "attribute", "stack"):
    table = getattr(tables, f"{name}_table")
    assert table[0] == type(table[0])(), name


def value(any_value):
    return getattr(any_value, any_value.WhichOneof("value"))


def attributes(numbers):
    rows = [tables.attribute_table[number] for number in numbers]
    return {strings[row.key_strindex]: value(row.value) for row in rows}


def frame(number):
    location = tables.location_table[number]
    [line] = location.lines
    function = tables.function_table[line.function_index]
    return {
        "name": strings[function.name_strindex],
        "file": strings[function.filename_strindex],
        "line": line.line,
        "mapping": strings[tables.mapping_table[location.mapping_index].filename_strindex],
        "type": attributes(location.attribute_indices).get("profile.frame.type"),
    }


def type_of(value_type):
    return [strings[value_type.type_strindex], strings[value_type.unit_strindex]]


frames = [frame(number) for number in range(1, len(tables.location_table))]


def profile(of):
    return {
        "type": type_of(of.sample_type),
        "period_type": type_of(of.period_type),
        "period": of.period,
        "time": of.time_unix_nano,
        "duration": of.duration_nano,
        "samples": [
            {
                "value": sample.values[0],
                # Frames by position, innermost first.
                "stack": [number - 1 for number in tables.stack_table[sample.stack_index].location_indices],
                "attributes": attributes(sample.attribute_indices),
            }
            for sample in of.samples
        ],
    }


def resource(of):
    [scope] = of.scope_profiles
    known = {attribute.key: value(attribute.value) for attribute in of.resource.attributes}
    return {"scope": scope.scope.name, "attributes": known, "profiles": [profile(it) for it in scope.profiles]}


# No stack is in the table twice.
stacks = [tuple(stack.location_indices) for stack in tables.stack_table]
assert len(stacks) == len(set(stacks))
json.dump({"frames": frames, "resources": [resource(it) for it in data.resource_profiles]}, sys.stdout)
