package redislimit

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir"
)

// Numbers that no script returns are an error, and no decision.
func TestStrangeNumbersAreNoDecision(t *testing.T) {
	r := &weir.Request{Key: "a", Limit: 5, Duration: time.Minute}
	for name, row := range map[string]struct {
		answer  func(*weir.Request, numbers) (decision, error)
		usual   numbers
		strange map[string]numbers
	}{
		"fixed": {fixed{}.answer, numbers{1, 1, 100}, map[string]numbers{
			"a negative count":           {1, -1, 100},
			"a window that no clock has": {1, 1, math.MaxInt64}}},
		"sliding": {sliding{}.answer, numbers{1, 1, 0, 1000}, map[string]numbers{
			"an admission that is not counted": {1, 0, 0, 1000},
			"a negative count":                 {1, 1, -1, 1000},
			"a denial with room":               {0, 1, 0, 1000},
			"an admission over the limit":      {1, 6, 0, 1000}}},
		"anchored": {anchored{}.answer, numbers{1, 1, 100, 5}, map[string]numbers{
			"a negative count":        {1, -1, 100, 5},
			"an instant that is none": {1, 1, 100, -5}}},
		"token": {token{}.answer, numbers{1, 112, 0, 100, 0}, map[string]numbers{
			"an admission that is not counted": {1, 111, 0, 100, 0},
			"a denial with room":               {0, 100, 0, 100, 0},
			"an admission over the limit":      {1, 173, 0, 100, 0},
			"an instant that is none":          {1, 112, -1, 100, 0},
			"a clock that is none":             {1, 112, 0, 100, -1}}},
	} {
		_, err := row.answer(r, row.usual)
		assert.NoError(t, err, name)
		for what, v := range row.strange {
			_, err := row.answer(r, v)
			assert.ErrorIs(t, err, ErrReply, "%s: %s", name, what)
		}
	}
}
