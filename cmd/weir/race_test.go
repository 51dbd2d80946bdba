//go:build race

package main

// The race detector multiplies the memory of a process by 5 to 10.
const memoryFactor = 6
