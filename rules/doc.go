// Package rules implements rate limits written as YAML rules, in the format that Lyft published and
// Envoy's rate limit service reads.
//
//	domain: edge
//	descriptors:
//	  - key: plan
//	    value: free
//	    descriptors:
//	      - key: user
//	        rate_limit: {unit: minute, requests_per_unit: 20}
//
// [Load] reads and checks files. It returns a [Set], or every mistake with its file, line and
// column. [Set.Match] finds the rule for a descriptor, [Set.Explain] says why that rule was chosen,
// and [Set.Diff] lists what another Set would change. [New] makes an [Engine] of a Set, which
// decides on requests in process, on Redis, or on both:
//
//	set, err := rules.LoadFiles("limits.yaml")
//	if err != nil { … }
//	engine, err := rules.New(set, rules.Config{})
//	if err != nil { … }
//	defer engine.Close()
//
//	resp, err := engine.Decide(ctx, &rules.Request{
//		Domain: "edge",
//		Descriptors: []rules.Descriptor{{Entries: []rules.Entry{{"plan", "free"}, {"user", id}}}},
//	})
//	if err != nil { … } // could not decide: fail open or fail closed, as you choose
//	if !resp.Allowed() { … }
//
// [Middleware] limits HTTP requests. The rate_limits of a file say which descriptors they have, or
// a program does so by package describe.
//
// # Settings of weir's own
//
// A descriptor's metadata may hold a map named weir, with the algorithm that counts (fixed_window,
// which is Envoy's and the default, sliding_window, sliding_log or token_bucket), for a token
// bucket its burst, and for costs that are known when a request ends "costs: afterwards", see
// [Engine]. Envoy's service ignores metadata, so it loads the same file. A rate_limit may have a
// unit_multiplier, the number of units in a period. The protocol has this field, but Envoy's
// service rejects it in a file. A value may be a range of addresses, {cidr: 10.0.0.0/8}, or a
// prefix, {prefix: /api/}, which Envoy's service rejects too. [Loader.Envoy] warns of them.
//
// # Differences from Envoy's service
//
//   - Keys and values are compared separately. Envoy's service joins them by underscores, so that
//     key a_b with value c equals key a with value b_c and shares its counter, key k_v without a
//     value matches key k with value v, and an asterisk in a key is a wildcard.
//   - A denied request counts in none of its descriptors, but for costs that are known afterwards;
//     see [Engine]. Config.CountDenied counts as Envoy's service does.
//   - A limit of 0 denies a peek too, and counts nothing.
//   - Every document of a file is read, but only files named *.yaml or *.yml.
//   - A key that occurs twice in one map is a mistake. In Envoy's service the last one wins.
//   - Wildcards of merged files are ordered by file name. In Envoy's service their order is random.
//   - An override without a unit, or of more than 365 days, is an error. It ends the process of
//     Envoy's service.
package rules
