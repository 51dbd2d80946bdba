//go:build race

package main

// The race detector multiplies the memory of a process by 5 to 10, and the time that it takes by 2 to 20.
const memoryFactor, timeFactor = 6, 10
