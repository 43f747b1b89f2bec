"""What a page holds besides its markup."""

import base64
import gzip
import re


def blobs(text: str) -> dict[str, str]:
    """The packed data of a page by name, unpacked."""
    matches = re.findall(r'<script type="application/octet-stream" id="blob-([^"]+)">([^<]*)</script>', text)
    return {name: gzip.decompress(base64.b64decode(data)).decode() for name, data in matches}
