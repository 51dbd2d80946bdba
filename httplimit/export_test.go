package httplimit

// DefaultName lets a test set the default name, so that a Strategy can have several guards.
var DefaultName = defaultName
