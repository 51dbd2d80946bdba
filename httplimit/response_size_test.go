package httplimit

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
)

// Each admitted request allocates a responseWriter. 80 bytes is a size class of the allocator; the
// next is 96.
func TestResponseWriterIsSmall(t *testing.T) {
	pointers := unsafe.Sizeof(uintptr(0))
	assert.LessOrEqual(t, unsafe.Sizeof(hijackWriter{}), 9*pointers+8)
}
