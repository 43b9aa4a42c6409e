#!/bin/sh
# There is a comment,
# of which nobody knows.
echo nobody # There is one behind code.
    # The kernel is asked. That is all.
