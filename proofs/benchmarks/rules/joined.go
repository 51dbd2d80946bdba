package main

import (
	"strings"
	"time"

	"github.com/weirgo/weir/rules"
)

func duration(ns int64) time.Duration { return time.Duration(ns) }

// joined is a tree of rules with the look-up of Envoy's rate limit service: first the key and value
// joined by an underscore, then the wildcards one by one, then the key alone.
type joined struct {
	nodes     map[string]*joined
	wildcards []string
	limited   bool
}

func joinedOf(data []byte) *joined { return join(decode(data).Descriptors) }

func join(list []yamlDescriptor) *joined {
	j := &joined{nodes: make(map[string]*joined)}
	for _, d := range list {
		key := d.Key
		if d.Value != "" {
			key += "_" + d.Value
		}
		next := join(d.Descriptors)
		next.limited = d.RateLimit != nil
		j.nodes[key] = next
		if strings.HasSuffix(key, "*") {
			j.wildcards = append(j.wildcards, key)
		}
	}
	return j
}

func (j *joined) match(entries []rules.Entry) bool {
	for _, e := range entries {
		text := e.Key + "_" + e.Value
		next := j.nodes[text]
		if next == nil {
			for _, w := range j.wildcards {
				if strings.HasPrefix(text, strings.TrimSuffix(w, "*")) {
					next = j.nodes[w]
					break
				}
			}
		}
		if next == nil {
			next = j.nodes[e.Key]
		}
		if next == nil {
			return false
		}
		j = next
	}
	return j.limited
}
