package httplimit

// DefaultName lets a test name a policy as New would: a Strategy may have several guards then.
var DefaultName = defaultName
