// Package raterlimiter is the program after a switch from raterlimiter.
package raterlimiter

import (
	"github.com/weirgo/weir"
)

func After(limiter *weir.Limiter, client string) (string, error) {
	verdict, err := limiter.Verdict(client, 30_000, 500)
	if err != nil {
		return "", err
	}
	return verdict.String(), nil // "{ok, continue}" or "{fail, 500}"
}
