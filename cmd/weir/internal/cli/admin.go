package cli

// Listed is an entry of the deny list.
type Listed struct {
	ID     string `json:"id,omitempty"`     // of a key
	Prefix string `json:"prefix,omitempty"` // of a prefix
	Name   string `json:"name"`
	Kind   string `json:"kind"`            // "address", "prefix" or "key"
	By     string `json:"by"`              // "hand", "file", "command line" or "penalty box"
	Until  int64  `json:"until,omitempty"` // 0: without end

	Stops int `json:"stops"` // callers of the last minute

	// About how many user agents and paths the caller of a key showed in the last minute: many may be
	// an office.
	Agents int `json:"agents,omitempty"`
	Paths  int `json:"paths,omitempty"`
}

// Denial is one denial.
type Denial struct {
	At    int64  `json:"at"`
	Of    string `json:"of"` // a method and a path, or a descriptor
	Limit string `json:"limit"`
}

// Progress is a line of the answer to a reset of several descriptors. The last one is Done, or has
// an Error.
type Progress struct {
	Seen  int    `json:"seen"`
	Reset int    `json:"reset"`
	Done  bool   `json:"done,omitempty"`
	Error string `json:"error,omitempty"`
}
