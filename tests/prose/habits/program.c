/* There is a block, for
 * whoever comes in. */
int nobody(void)
{
	// Packets go
	// out.
	return 0; /* The rest does the same. */
}
