"""Runs one query of bprec-fleet on Spark, over the files that the request lists.

The only argument is a directory. `request.json` has the request of bprec-fleet. `started` is created when the cluster has run a task.
`answer.jsonl` appears when it is complete. bprec-fleet holds a lock on `request.json`; the driver ends when the lock is released.
"""

import datetime
import decimal
import fcntl
import json
import math
import os
import re
import shutil
import sys
import threading
import time
from urllib.parse import unquote, urlsplit

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, functions, types

# With these settings, a query means the same as in DataFusion, and Spark fails if it cannot read a file completely.
SETTINGS = {
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.ansi.enforceReservedKeywords": "false",
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.parser.escapedStringLiterals": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",
}


class Refused(Exception):
    """An error for the user of bprec-fleet."""


def end_with_owner(directory, owner):
    with open(owner, encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
    shutil.rmtree(directory, ignore_errors=True)
    os._exit(1)


def register(spark, table):
    """Makes a view of a table."""
    reader = spark.read.schema(table["schema"]).option("basePath", "file://" + table["directory"])
    files = table["files"]
    if files:
        # Spark reads paths as patterns, so pattern characters are escaped. The option that disables patterns would list all files once per path.
        rows = reader.parquet(*("file://" + re.sub(r"([\\\[\]{}*?])", r"\\\1", path) for path in files))
        # Spark skips files that it regards as hidden.
        found = sorted(unquote(urlsplit(uri).path) for uri in rows.inputFiles())
        if found != sorted(files):
            raise Refused(f"Spark: {table['name']}: Spark reads {len(found)} files where {len(files)} were committed")
    else:
        rows = spark.createDataFrame([], table["schema"])
    for condition in table["conditions"]:
        try:
            rows = rows.filter(functions.expr(condition))
        except PySparkException as error:
            raise Refused(f"--where {condition}: is not a condition on the columns of {table['name']}: {message(error)}") from error
    rows.createOrReplaceTempView(table["name"])


def query(spark, sql):
    """Returns the rows of a query. The parser refuses all other statements."""
    spark._jsparkSession.sessionState().sqlParser().parseQuery(sql)
    return spark.sql(sql)


def text(value):
    """Formats a value as DataFusion does: times in UTC, seconds with no, three or six decimals."""
    if isinstance(value, datetime.datetime):
        digits = "seconds" if value.microsecond == 0 else "milliseconds" if value.microsecond % 1000 == 0 else "microseconds"
        return value.isoformat(timespec=digits)
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    return str(value)


def column(data_type):
    """Returns the function that makes JSON values of a column: integers of any length, finite reals, booleans and text; null stays null."""
    if isinstance(data_type, types.DecimalType):
        write = int if data_type.scale == 0 else text
    elif isinstance(data_type, types.FractionalType):
        write = lambda value: value if math.isfinite(value) else None
    elif isinstance(data_type, types.TimestampType):
        write = lambda value: text(value) + "Z"
    elif isinstance(data_type, (types.BooleanType, types.IntegralType)):
        write = lambda value: value
    else:
        write = text
    return lambda value: None if value is None else write(value)


def message(error):
    """First line of an error of Spark, without query plan and stack."""
    return str(error).strip().split("\n")[0]


def answer(directory, request):
    builder = SparkSession.builder.config("spark.sql.warehouse.dir", os.path.join(directory, "warehouse"))
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    # A cluster without free cores never starts a task. bprec-fleet waits for this file for a limited time.
    spark.range(1).count()
    with open(os.path.join(directory, "started"), "w", encoding="utf-8"):
        pass
    for table in request["tables"]:
        register(spark, table)
    rows = query(spark, request["sql"])
    fields = rows.schema.fields
    yield {"Ok": [field.name for field in fields]}
    columns = [column(field.dataType) for field in fields]
    for row in rows.collect():
        yield [write(value) for write, value in zip(columns, row)]


def main():
    directory = sys.argv[1]
    owner = os.path.join(directory, "request.json")
    threading.Thread(target=end_with_owner, args=(directory, owner), daemon=True).start()
    # Spark converts times to the time zone of this process.
    os.environ["TZ"] = "UTC"
    time.tzset()
    with open(owner, encoding="utf-8") as file:
        request = json.load(file)
    part = os.path.join(directory, "answer.part")
    with open(part, "w", encoding="utf-8") as file:
        try:
            lines = list(answer(directory, request))
        except Refused as error:
            lines = [{"Err": str(error)}]
        except PySparkException as error:
            lines = [{"Err": f"Spark: {message(error)}"}]
        file.writelines(json.dumps(line) + "\n" for line in lines)
    os.rename(part, os.path.join(directory, "answer.jsonl"))


main()
