package similar

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestDistance(t *testing.T) {
	for _, row := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"abc", "abd", 1}, {"abc", "acb", 1},
		{"kitten", "sitting", 3}, {"abcdef", "fedcba", 5}} {
		assert.Equal(t, row.want, distance(row.a, row.b, 9), row.a+" "+row.b)
		assert.Equal(t, row.want, distance(row.b, row.a, 9), row.b+" "+row.a)
		assert.Equal(t, min(2, row.want), distance(row.a, row.b, 2))
	}
}
