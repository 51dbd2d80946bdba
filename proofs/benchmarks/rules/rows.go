package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing/fstest"

	"github.com/weirgo/weir/rules"
	"go.yaml.in/yaml/v4"
)

// rows returns the operations to measure.
func rows() []row {
	exact := file(1000, func(i int) string { return fmt.Sprintf("user%d", i) })
	wild := file(1000, func(i int) string { return fmt.Sprintf("/v1/path%d/*", i) })
	deep := nested(10, 10, 10)
	large := file(10_000, func(i int) string { return fmt.Sprintf("user%d", i) })
	return []row{
		match("match 1 of 1,000 values", exact, 300, "key", func(i int) string {
			return fmt.Sprintf("user%d", i)
		}),
		match("match 1 of 1,000 wildcards", wild, 300, "key", func(i int) string {
			return fmt.Sprintf("/v1/path%d/x", i)
		}),
		match("match none of 1,000 wildcards", wild, 300, "key", func(i int) string {
			return fmt.Sprintf("/v2/path%d/x", i)
		}),
		matchDeep("match 3 levels of 10 × 10 × 10 rules", deep),
		{name: "load and check 10,000 rules", bar: 200_000_000,
			weir: func() { load(large) }, rival: func() { decode(large) }},
		decision("decide on one descriptor, 1,000 rules", exact),
	}
}

// file returns rules for n values of one key.
func file(n int, value func(i int) string) []byte {
	var b bytes.Buffer
	b.WriteString("domain: d\ndescriptors:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - key: key\n    value: %q\n"+
			"    rate_limit:\n      unit: hour\n      requests_per_unit: 1000000000\n", value(i))
	}
	return b.Bytes()
}

func nested(counts ...int) []byte {
	var b bytes.Buffer
	b.WriteString("domain: d\ndescriptors:\n")
	var level func(depth int)
	level = func(depth int) {
		pad := strings.Repeat("    ", depth)
		for i := range counts[depth] {
			fmt.Fprintf(&b, "%s  - key: key%d\n%s    value: v%d\n", pad, depth, pad, i)
			if depth == len(counts)-1 {
				fmt.Fprintf(&b, "%s    rate_limit: {unit: hour, requests_per_unit: 1}\n", pad)
				continue
			}
			fmt.Fprintf(&b, "%s    descriptors:\n", pad)
			level(depth + 1)
		}
	}
	level(0)
	return b.Bytes()
}

func load(data []byte) *rules.Set {
	set, err := rules.Load(fstest.MapFS{"r.yaml": {Data: data}})
	if err != nil {
		panic(err)
	}
	return set
}

// match measures matching one entry. The values are built before the measurement, and are not the
// strings that the rules hold.
func match(name string, data []byte, bar int64, key string, value func(i int) string) row {
	set, rival := load(data), joinedOf(data)
	requests := make([][]rules.Entry, 1000)
	for i := range requests {
		requests[i] = []rules.Entry{{Key: key, Value: value(i * 7 % 1000)}}
		if (set.Match("d", requests[i]) != nil) != rival.match(requests[i]) {
			panic(name + ": weir and the rival disagree")
		}
	}
	return matchRow(name, set, rival, requests, bar)
}

func matchDeep(name string, data []byte) row {
	set, rival := load(data), joinedOf(data)
	requests := make([][]rules.Entry, 1000)
	for i := range requests {
		for depth, v := range []int{i / 100, i / 10 % 10, i % 10} {
			requests[i] = append(requests[i],
				rules.Entry{Key: fmt.Sprintf("key%d", depth), Value: fmt.Sprintf("v%d", v)})
		}
		if set.Match("d", requests[i]) == nil || !rival.match(requests[i]) {
			panic(name + ": no match")
		}
	}
	return matchRow(name, set, rival, requests, 300)
}

func matchRow(name string, set *rules.Set, rival *joined, requests [][]rules.Entry, bar int64) row {
	n, m := 0, 0
	return row{
		name:  name,
		bar:   duration(bar),
		weir:  func() { set.Match("d", requests[n%1000]); n++ },
		rival: func() { rival.match(requests[m%1000]); m++ },
	}
}

func decision(name string, data []byte) row {
	engine, err := rules.New(load(data), rules.Config{})
	if err != nil {
		panic(err)
	}
	requests := make([]rules.Request, 1000)
	for i := range requests {
		requests[i] = rules.Request{Domain: "d", Descriptors: []rules.Descriptor{
			{Entries: []rules.Entry{{Key: "key", Value: fmt.Sprintf("user%d", i)}}}}}
	}
	var resp rules.Response
	n := 0
	return row{name: name, weir: func() {
		if err := engine.DecideInto(context.Background(), &requests[n%1000], &resp); err != nil ||
			!resp.Allowed() {
			panic(fmt.Sprint(resp.Code(), err))
		}
		n++
	}}
}

// The structs that the rivals decode a rules file into.
type (
	yamlFile struct {
		Domain      string
		Descriptors []yamlDescriptor
	}
	yamlDescriptor struct {
		Key, Value  string
		RateLimit   *yamlLimit `yaml:"rate_limit"`
		Descriptors []yamlDescriptor
	}
	yamlLimit struct {
		Unit     string
		Requests uint32 `yaml:"requests_per_unit"`
	}
)

func decode(data []byte) yamlFile {
	var f yamlFile
	if err := yaml.Load(data, &f, yaml.WithKnownFields()); err != nil {
		panic(err)
	}
	return f
}
