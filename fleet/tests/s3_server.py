"""S3-compatible server (moto) on a free port, for tests and benches. Ends with its standard input.

The first line of the output has the endpoint, and the id and secret of an access key. Each line of the input is a command; each is answered by a
line of JSON:

sign on|off         refuse requests without a valid signature, or accept all
keys PREFIX         sorted keys of the objects below the prefix
age PREFIX          make these objects two hours older
unconditional PREFIX ignore `If-None-Match: *` of requests that create these objects, as other servers do
cut|flip|remove KEY halve an object, change a bit at one third of it, or remove it
"""

import datetime
import json
import logging
import sys
import threading

import boto3
from moto import settings
from moto.core import DEFAULT_ACCOUNT_ID
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from moto.s3.models import s3_backends
from werkzeug.serving import make_server

BUCKET = "lakes"
REGION = "us-east-1"
UNSIGNED = settings.INITIAL_NO_AUTH_ACTION_COUNT


def create():
    """Creates the bucket, and an access key that may do everything."""
    options = {"endpoint_url": endpoint, "region_name": REGION, "aws_access_key_id": "setup", "aws_secret_access_key": "setup"}
    boto3.client("s3", **options).create_bucket(Bucket=BUCKET)
    iam = boto3.client("iam", **options)
    iam.create_user(UserName="bprec")
    policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
    iam.put_user_policy(UserName="bprec", PolicyName="s3", PolicyDocument=json.dumps(policy))
    return iam.create_access_key(UserName="bprec")["AccessKey"]


def answer(verb, of):
    objects = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[BUCKET].keys
    if verb == "sign":
        settings.INITIAL_NO_AUTH_ACTION_COUNT = 0 if of == "on" else UNSIGNED
    elif verb == "keys":
        return sorted(key for key in list(objects) if key.startswith(of))
    elif verb == "age":
        for key in answer("keys", of):
            objects[key].last_modified -= datetime.timedelta(hours=2)
    elif verb == "unconditional":
        unconditional.append(of)
    elif verb == "remove":
        objects.pop(of)
    else:
        content = bytearray(objects[of].value)
        if verb == "cut":
            del content[len(content) // 2 :]
        else:
            content[len(content) // 3] ^= 0x10
        objects[of].value = bytes(content)
    return None


def overwriting(application):
    """Removes objects that exist before a request creates them anew. The request stays as it was signed."""

    def respond(environ, start_response):
        key = environ["PATH_INFO"].removeprefix(f"/{BUCKET}/")
        if environ["REQUEST_METHOD"] == "PUT" and key.startswith(tuple(unconditional)):
            objects = s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets[BUCKET].keys
            if key in objects:
                objects.pop(key)
        return application(environ, start_response)

    return respond


logging.getLogger("werkzeug").setLevel(logging.ERROR)
unconditional = []
server = make_server("127.0.0.1", 0, overwriting(DomainDispatcherApplication(create_backend_app)), threaded=True, request_handler=MotoRequestHandler)
threading.Thread(target=server.serve_forever, daemon=True).start()
endpoint = f"http://127.0.0.1:{server.server_port}"
access = create()
print(endpoint, access["AccessKeyId"], access["SecretAccessKey"], flush=True)
for line in sys.stdin:
    print(json.dumps(answer(*line.split())), flush=True)
