"""An SNS that is not ours, by Python's cryptography: signs notifications as Amazon documents it, and verifies them.

    sns.py certificate KEYFILE              makes a key, prints its certificate
    sns.py sign KEYFILE < notification      prints it, signed by its SignatureVersion
    sns.py verify CERTIFICATE < notification    fails unless the signature fits
"""

import base64
import datetime
import json
import sys

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.x509.oid import NameOID

# "Verifying the signatures of Amazon SNS messages", in byte order.
NOTIFICATION = ["Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"]
CONFIRMATION = ["Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"]


def signed(n):
    names = NOTIFICATION if n["Type"] == "Notification" else CONFIRMATION
    return "".join(f"{name}\n{n[name]}\n" for name in names if n.get(name) is not None).encode()


def algorithm(n):
    return {"1": hashes.SHA1(), "2": hashes.SHA256()}[n["SignatureVersion"]]


def certificate(path):
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    with open(path, "wb") as f:
        f.write(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sns.amazonaws.com")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(x509.random_serial_number())
    made = made.not_valid_before(now - datetime.timedelta(hours=1)).not_valid_after(now + datetime.timedelta(days=1)).sign(key, hashes.SHA256())
    print(made.public_bytes(serialization.Encoding.PEM).decode(), end="")


def main(what, path):
    if what == "certificate":
        return certificate(path)
    n = json.load(sys.stdin)
    with open(path, "rb") as f:
        given = f.read()
    if what == "sign":
        key = serialization.load_pem_private_key(given, None)
        n["Signature"] = base64.b64encode(key.sign(signed(n), padding.PKCS1v15(), algorithm(n))).decode()
        json.dump(n, sys.stdout)
    elif what == "verify":
        public = x509.load_pem_x509_certificate(given).public_key()
        public.verify(base64.b64decode(n["Signature"]), signed(n), padding.PKCS1v15(), algorithm(n))


main(*sys.argv[1:])
