// Package verify holds the evidence that needs more than the root module may require: properties of
// drawn sequences, linearizability of concurrent histories, leaks and memory. It has tests only,
// and uses weir as any other package does.
//
// CLAIMS.md lists what is claimed and the test that proves it. A test of concurrency has a control
// beside it: a deliberately broken limiter that the test must reject. Sizes are those of package
// internal/testkit/slow.
package verify
