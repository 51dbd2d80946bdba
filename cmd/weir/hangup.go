//go:build !js

package main

import "syscall"

// hangUpSignal has the proxy and the server reload.
const hangUpSignal = syscall.SIGHUP
