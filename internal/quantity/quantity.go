// Package quantity parses Kubernetes quantities from untrusted texts: manifests,
// annotations, flags and the names of huge pages. The parser of Kubernetes accepts any
// exponent and any number of digits: the parsing of 1e-2000000000 uses all memory of the
// machine.
package quantity

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

const (
	// MaxExponent is the largest accepted exponent, and -MaxExponent the smallest. This is
	// enough: the largest suffix, Ei, is less than 1e19.
	MaxExponent = 99
	// MaxLength is the maximum length of a text in bytes. This is enough: the largest
	// number of any resource has 20 digits.
	MaxLength = 128
)

// ErrTooCostly means that Parse has rejected a text without parsing it.
var ErrTooCostly = fmt.Errorf("want a quantity of at most %d bytes with an exponent from -%d to %d", MaxLength, MaxExponent, MaxExponent)

// Parse parses a quantity. If the text is not [Cheap], the error is ErrTooCostly.
func Parse(s string) (resource.Quantity, error) {
	if !Cheap(s) {
		return resource.Quantity{}, ErrTooCostly
	}
	return resource.ParseQuantity(s)
}

// Cheap reports whether the parser of Kubernetes parses s in little time. s may be invalid.
func Cheap(s string) bool {
	if len(s) > MaxLength {
		return false
	}
	i := strings.LastIndexAny(s, "eE")
	if i < 0 || i == len(s)-1 {
		return true // a suffix: 1E is an exabyte
	}
	n, err := strconv.Atoi(s[i+1:])
	if err != nil {
		return !errors.Is(err, strconv.ErrRange)
	}
	return n >= -MaxExponent && n <= MaxExponent
}
