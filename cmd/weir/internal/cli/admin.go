package cli

// Explained is why a caller is limited, or why it is not: what a server answers with to
// GET /-/explain. Times are in ms since the Unix epoch.
type Explained struct {
	ID     string   `json:"id,omitempty"` // of a key
	Name   string   `json:"name"`         // the key, or the descriptor
	Now    int64    `json:"now"`
	Says   string   `json:"says"`             // whether a request passes now, as of Name
	Notes  []string `json:"notes,omitempty"`  // what else to know
	Exempt bool     `json:"exempt,omitempty"` // no limit applies to its address
	Shadow bool     `json:"shadow,omitempty"` // it passes whatever is said below
	Alone  bool     `json:"alone,omitempty"`  // Redis is down: Used counts the shares of others, too
	Listed *Listed  `json:"listed,omitempty"` // the entry of the deny list that refuses it
	Limits []Held   `json:"limits,omitempty"`
	Rules  bool     `json:"rules,omitempty"` // further limits are rules, which count descriptors

	// How often it was denied since the start: at least Denials-Error times.
	Denials uint64   `json:"denials"`
	Error   uint64   `json:"error,omitempty"`
	Last    []Denial `json:"last,omitempty"` // the latest denials, the last one first

	Steps string `json:"steps,omitempty"` // how a descriptor was looked up in the rules
}

// Listed is an entry of the deny list.
type Listed struct {
	ID     string `json:"id,omitempty"`     // of a key
	Prefix string `json:"prefix,omitempty"` // of a prefix
	Name   string `json:"name"`
	Kind   string `json:"kind"`            // "address", "prefix" or "key"
	By     string `json:"by"`              // "hand", "file", "command line" or "penalty box"
	Until  int64  `json:"until,omitempty"` // 0: without end

	Stops int `json:"stops"` // callers of the last minute
}

// Held is what a limit holds of a caller.
type Held struct {
	Name     string `json:"name"`
	Limit    string `json:"limit"`
	Counting string `json:"counting,omitempty"` // the strategy
	Route    string `json:"route,omitempty"`    // empty: all requests, or those of no other route
	AtOnce   uint64 `json:"at_once"`            // the most that passes within a moment
	Used     uint64 `json:"used"`
	Left     uint64 `json:"left"`

	Passes int64  `json:"passes,omitempty"` // when a request passes; 0: now
	Busy   bool   `json:"busy,omitempty"`   // one passes when another of the caller's has ended
	Never  bool   `json:"never,omitempty"`  // none passes
	Error  string `json:"error,omitempty"`  // why none of this is known
	When   string `json:"when"`             // all of this in words
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
