"""Asks five times with urllib3, which retries, and prints each status: client.py URL."""

import sys

import urllib3

retry = urllib3.Retry(total=5, status_forcelist=[429], respect_retry_after_header=True)
pool = urllib3.PoolManager(retries=retry)
for _ in range(5):
    print(pool.request("GET", sys.argv[1]).status)
