// Package weirtest helps to test code that limits rates, and strategies that do the limiting.
//
//   - [Fake] is a weir.Strategy that does as it is told and records what it was asked: for the tests of a service.
//   - [Clock] is virtual time, to be handed to weir.Config.Now: for tests in which a window must end.
//   - [TestStrategy] holds any weir.Strategy to the laws that those of package weir keep, in the manner of
//     testing/fstest and testing/slogtest: for the tests of a strategy.
package weirtest
