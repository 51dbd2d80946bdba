//go:build !js

package main

import "syscall"

// hangUpSignal makes the proxy and the server reload.
const hangUpSignal = syscall.SIGHUP
