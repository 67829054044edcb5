/** Style sheets are imported for their effect; the build moves them out of the script. */
declare module "*.css";
