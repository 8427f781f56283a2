#!/bin/sh
# Install the public SDKs into the folder $1. Tests only: none of their code is part of the project.
set -eu
folder="$1"
mkdir -p "$folder"
if [ ! -d "$folder/node_modules/@agentclientprotocol/sdk" ]; then
    printf '{"private": true}\n' > "$folder/package.json"
    (cd "$folder" && npm install --silent --no-fund --no-audit @agentclientprotocol/sdk@2.4.0)
fi
if [ ! -x "$folder/python-v2/bin/python" ]; then
    "${PYTHON:-python3}" -m venv "$folder/python-v2"
    "$folder/python-v2/bin/python" -m pip install --quiet --disable-pip-version-check agent-client-protocol==1.0.0rc3
fi
