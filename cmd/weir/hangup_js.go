package main

import "syscall"

// hangUpSignal is one that never comes: a browser sends none.
const hangUpSignal = syscall.Signal(-1)
