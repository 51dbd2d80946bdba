// Package rules limits by rules in YAML: in the form that Lyft published and Envoy's rate limit
// service reads.
//
//	domain: edge
//	descriptors:
//	  - key: plan
//	    value: free
//	    descriptors:
//	      - key: user
//	        rate_limit: {unit: minute, requests_per_unit: 20}
//
// [Load] reads and checks files and returns a [Set], or every mistake with its file, line and
// column. [Set.Match] finds the rule for a descriptor, [Set.Explain] tells why it is that one, and
// [Diff] tells what another Set would change. [New] makes an [Engine] of a Set, which decides on
// requests in process, on Redis, or on both:
//
//	set, err := rules.LoadFiles("limits.yaml")
//	if err != nil { … }
//	engine, err := rules.New(set, rules.Config{})
//	if err != nil { … }
//	defer engine.Close()
//
//	resp, err := engine.Decide(ctx, &rules.Request{Domain: "edge", Descriptors: []rules.Descriptor{
//		{Entries: []rules.Entry{{"plan", "free"}, {"user", id}}},
//	}})
//	if err != nil { … } // could not decide: fail open or fail closed, as you choose
//	if !resp.Allowed() { … }
//
// # Settings of weir's own
//
// A descriptor's metadata may hold a map named weir, with the algorithm that counts (fixed_window,
// sliding_window, sliding_log or token_bucket) and, for a token bucket, its burst. Envoy's service
// does not look into metadata, so the file loads there too. A rate_limit may have a
// unit_multiplier, the number of units in a period, which the protocol has and Envoy's service
// refuses in a file; [Loader.Envoy] warns of it.
//
// # Differences from Envoy's service
//
//   - Keys and values are compared as they are, and not joined by underscores. There, key a_b with value c is the same
//     as key a with value b_c; key k_v without a value serves key k with value v; an asterisk in a key is a wildcard;
//     and the counters of such entries are one.
//   - A request that is denied counts in none of its descriptors; what is over its limit rises to one above it, and no
//     further. Verdicts on a single descriptor are the same. See [Engine].
//   - A limit of 0 is over for a peek too, and counts nothing.
//   - Every document of a file is read, and only files named *.yaml or *.yml.
//   - A key that is twice in one map is a mistake; there the last one counts.
//   - Wildcards of merged files are in the order of the files' names; there it is random.
//   - An override without a unit, or of more than 365 days, is an error; there the process ends.
package rules
