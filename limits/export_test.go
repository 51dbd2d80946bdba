package limits

import "github.com/weirgo/weir"

// AllOf is All of strategies, which get the numbers of requests.
func AllOf(strategies ...weir.Strategy) *Several {
	a := several(strategies)
	a.about.Bound = false
	return a
}
