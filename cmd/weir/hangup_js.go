package main

import "syscall"

// hangUpSignal never arrives: a browser sends no signals.
const hangUpSignal = syscall.Signal(-1)
