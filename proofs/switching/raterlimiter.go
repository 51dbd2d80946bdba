package switching

import (
	"github.com/weirgo/weir"
)

func afterRaterLimiter(limiter *weir.Limiter, client string) (string, error) {
	verdict, err := limiter.Verdict(client, 30_000, 500)
	if err != nil {
		return "", err
	}
	return verdict.String(), nil // "{ok, continue}" or "{fail, 500}"
}
