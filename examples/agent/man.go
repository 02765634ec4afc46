package main

import (
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// newMan returns the command that writes the manual pages of all commands. It is used when a package
// is built.
func newMan() *cobra.Command {
	var date string
	cmd := &cobra.Command{
		Use: "man DIRECTORY", Short: "Write the manual pages of all commands", Hidden: true, Args: cobra.ExactArgs(1),
		Example: "  agent man /usr/local/share/man/man8",
		RunE: func(cmd *cobra.Command, args []string) error {
			header := &doc.GenManHeader{Section: "8", Source: cmd.Root().Name(), Manual: "System administration"}
			if date != "" {
				day, err := time.Parse(time.DateOnly, date)
				if err != nil {
					return err
				}
				header.Date = &day
			}
			cmd.Root().DisableAutoGenTag = true
			return doc.GenManTree(cmd.Root(), header, args[0])
		},
	}
	cmd.Flags().StringVar(&date, "date", "", "the `date` of the pages, such as 2030-01-31")
	return cmd
}
