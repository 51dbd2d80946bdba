package fallback

// calls are calls of primary that are under way at the same time. Local must not admit the cost
// that these may still admit: before a decision local counts that cost, and takes back the cost of
// each call which then admits nothing. Calls that begin later are others. Those take the admissions
// of local along, so that primary counts the admissions first.
//
//	                                                     local counts   primary counts
//	1. two calls begin                                   0              0
//	2. another call fails: local counts the two, and
//	   admits its request                                3              0
//	3. a call begins, and takes the debt of 1 along; it
//	   is admitted                                       4              2
//	4. the first call is admitted                        4              3
//	5. the second fails: local takes it back, and admits
//	   its request                                       4              3, and is owed 1
//
// In step 3 local comes up to the count of primary and the first two calls, which may not be in it.
type calls struct {
	cost     sum               // of those under way, if local does not count them
	giveBack func(cost uint64) // takes back from local; nil: local does not count them
}
