// Package switching has the programs of docs/switching.md, before and after a switch to weir. Its
// tests run them, and check what the page says of their verdicts.
package switching
