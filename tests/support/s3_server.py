"""S3 server: `python s3_server.py BUCKET` prints its port, and ends at the end of its input."""

import sys

from moto.server import ThreadedMotoServer


def main(bucket):
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    import boto3

    boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{port}",
        region_name="us-east-1",
        aws_access_key_id="key",
        aws_secret_access_key="secret",
    ).create_bucket(Bucket=bucket)
    print(port, flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main(sys.argv[1])
