// Package verbtest tests the verbs of any store against models that share no code with it:
// decisions of several limits at once, token buckets whose rates change, and reservations. Each
// model has a store beside it that it must reject.
package verbtest
