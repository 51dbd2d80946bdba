package limits

import "github.com/weirgo/weir"

// AllOf is the strategy of All of strategies, which get the numbers of requests.
func AllOf(strategies ...weir.Strategy) weir.Strategy { return &all{strategies: strategies} }
