package httpclient

import (
	"strings"
	"sync"
)

const (
	// maxResources bounds the resources of a key, and its paths of which the resource is recorded.
	// Beyond it, pauses hold back the whole key.
	maxResources = 100

	maxResourceName = 100 // bytes
)

// resources records which resource of a key the requests of a path count for. Servers report it
// only in responses. A path is the first segment of a request's path.
type resources struct {
	mu   sync.Mutex
	keys map[string]*keyResources // guarded by mu
}

// keyResources is guarded by resources.mu.
type keyResources struct {
	byPath map[string]string
	names  map[string]bool // all that were ever in byPath: each of them can have a pause
}

// find returns the resource of a path; "" if no response has reported it.
func (r *resources) find(key, path string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.keys[key]
	if k == nil {
		return ""
	}
	return k.byPath[path]
}

// learn records the resource of a path and reports whether there was room for it.
func (r *resources) learn(key, path, name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := r.keys[key]
	if k == nil {
		if len(r.keys) >= maxPaused {
			return false
		}
		if r.keys == nil {
			r.keys = make(map[string]*keyResources)
		}
		k = &keyResources{byPath: make(map[string]string), names: make(map[string]bool)}
		r.keys[key] = k
	}
	if known, ok := k.byPath[path]; ok && known == name {
		return true
	} else if !ok && len(k.byPath) >= maxResources ||
		!k.names[name] && (len(k.names) >= maxResources || len(name) > maxResourceName) {
		return false
	}
	path, name = strings.Clone(path), strings.Clone(name) // parts of longer strings
	k.byPath[path], k.names[name] = name, true
	return true
}

// firstSegment returns the beginning of a path up to its second slash.
func firstSegment(path string) string {
	if path == "" {
		return "/"
	}
	if i := strings.IndexByte(path[1:], '/'); i >= 0 {
		return path[:i+1]
	}
	return path
}
