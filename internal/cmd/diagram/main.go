// Command diagram makes SVG pictures of text, for the documents:
//
//	go run ./internal/cmd/diagram docs/floors.txt
//
// writes docs/floors.svg. A line "label: a b c" is a row of boxes, a line
// "a -> b: text" an arrow between two of them. Empty lines and lines that begin with
// # mean nothing.
package main

import (
	"fmt"
	"os"
	"strings"
)

func main() {
	for _, file := range os.Args[1:] {
		if err := convert(file); err != nil {
			fmt.Fprintln(os.Stderr, "diagram:", err)
			os.Exit(1)
		}
	}
}

func convert(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	svg, err := draw(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(strings.TrimSuffix(file, ".txt")+".svg", []byte(svg), 0o644)
}
