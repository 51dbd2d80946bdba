// Package verify holds the evidence that needs more than the root module may require: properties of drawn sequences,
// linearizability of concurrent histories, leaks and memory. It has tests only, and uses weir as any other package does.
//
// A test is named after the claim it stands for, and one of concurrency has a control beside it: something broken, that
// the test must reject. WEIR_VERIFY=full runs every figure at its nightly size.
package verify
