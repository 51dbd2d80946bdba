package echolimit_test

import (
	"net/http"
	"testing"

	"github.com/labstack/echo/v5"
	"github.com/stretchr/testify/assert"
)

// These are the differences between the tests for Echo v5 and for v4.

func written(c *echo.Context) int {
	_, status := echo.ResolveResponseStatus(c.Response(), nil)
	return status
}

// assertDenialFields checks the fields that the store has set.
func assertDenialFields(t *testing.T, resp *http.Response) {
	assert.Equal(t, "45", resp.Header.Get("Retry-After"))
	assert.Equal(t, `"2/1m";r=0;t=45`, resp.Header.Get("RateLimit"))
	assert.Equal(t, "application/json", resp.Header.Get("Content-Type"))
}
