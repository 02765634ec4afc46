// Package page has tests that look at the agent's page in Chromium.
package page
