// Package weirtest helps to test code that uses a rate limiter, and implementations of
// weir.Strategy.
//
//   - [Fake] is a weir.Strategy with scripted answers that records its calls, for the tests of a
//     service.
//   - [Clock] is virtual time for weir.Config.Now, for tests in which a window must end.
//   - [TestStrategy] is the conformance suite of weir.Strategy, in the manner of testing/fstest and
//     testing/slogtest, for the tests of a strategy.
package weirtest
