package urlpath

// AllReadings is Readings within bounds that only end a test in time.
func AllReadings(path string) ([]Reading, error) {
	if plain(path) {
		return Readings(nil, path)
	}
	var w work
	return w.readings(nil, path, work{100, 1 << 20})
}
