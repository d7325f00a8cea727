"""Unfinished multipart uploads on a real S3 server."""

from __future__ import annotations

from conftest import Place


def begin_upload(place: Place, path: str) -> None:
    client = place.client()
    bucket, _, key = place.root.removeprefix("s3://").partition("/")
    client.call_s3("create_multipart_upload", Bucket=bucket, Key=f"{key}/{path}")


def uploads_of(place: Place) -> list[str]:
    client = place.client()
    bucket, _, key = place.root.removeprefix("s3://").partition("/")
    answer = client.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=f"{key}/")
    return [upload["Key"].removeprefix(f"{key}/") for upload in answer.get("Uploads", ())]
