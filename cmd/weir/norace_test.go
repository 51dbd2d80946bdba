//go:build !race

package main

const memoryFactor, timeFactor = 1, 1
