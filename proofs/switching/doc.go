// Package switching has programs before and after a switch to weir. docs/switching.md shows those
// after. The tests run all, and check what the page says of their verdicts.
package switching
