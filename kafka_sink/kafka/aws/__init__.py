"""AWS MSK IAM: OAUTHBEARER tokens that this process signs with AWS credentials.

    signer = MskIamSigner(login, hosts, os.environ, time.time)
    token, lifetime_s = signer.fetch()       # raises TokenUnavailable

`sigv4.py` signs; `credentials.py` finds credentials in the environment and in AWS's files, `chain.py` asks botocore for
all others; `files.py` reads AWS's files; `region.py` finds the region; `msk_iam.py` joins them.

Source: aws-msk-iam-sasl-signer-python and aws-msk-iam-auth, AWS's own libraries for Python and Java.
"""
