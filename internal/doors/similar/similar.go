// Package similar finds what was probably meant by a word that is misspelled.
package similar

import "strings"

// To returns the candidate that is most similar to word, or "" if none is similar or there are over
// 1,000, which would take seconds for a file of mistakes. Candidates are in lower case.
func To(word string, candidates []string) (best string) {
	if len(candidates) > 1000 {
		return ""
	}
	least := 1 + max(1, len(word)/3)
	for _, c := range candidates {
		if d := distance(strings.ToLower(word), c, least); d < least {
			best, least = c, d
		}
	}
	return best
}

// distance returns the edit distance of a and b: the number of insertions, deletions, substitutions
// and swaps of neighbors that turn one into the other. It returns at most bound.
func distance(a, b string, bound int) int {
	if len(a)-len(b) >= bound || len(b)-len(a) >= bound {
		return bound
	}
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	for j := range rows[1] {
		rows[1][j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, above, row := rows[(i+2)%3], rows[i%3], rows[(i+1)%3]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			differs := 1
			if a[i-1] == b[j-1] {
				differs = 0
			}
			row[j] = min(above[j]+1, row[j-1]+1, above[j-1]+differs)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return min(bound, rows[(len(a)+1)%3][len(b)])
}
